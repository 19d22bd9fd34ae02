"""What the runs on JAX and PyTorch leave out, each with its reason.

JAX compiles every small program of a test, for each shape anew. So it also leaves out tests that
another test there already stands for, at its price. TensorFlow runs all of these tests. A test, a
file or a folder is left out by how its id begins.
"""

LEFT_OUT_ON_BOTH = {
    "no backend computes anything in it": [
        "tests/batches/test_buckets.py",
        "tests/batches/test_passes.py",
        "tests/batches/test_prepared_corpus.py",
        "tests/callbacks/test_text_errors.py",
        "tests/plots/",
        "tests/test_architecture.py",
        "tests/test_atomic_files.py",
        "tests/test_command_process.py",
        "tests/test_guide.py::test_pictures",
        "tests/test_line_files.py",
        "tests/test_processes.py",
        "tests/test_processor.py",
        "tests/test_prose.py",
        "tests/test_readme.py",
        "tests/test_reservoir.py",
        "tests/test_selection.py",
        "tests/test_types.py",
        "tests/models/test_transformer.py::test_the_parameters_of_the_base_model",
        "tests/models/test_recurrent.py::test_a_bad_argument_is_refused[dropout-1]",
        "tests/models/test_transformer_r_drop.py::test_another_loss_and_a_bad_weight_raise",
        "tests/test_optimizers.py::test_bad_arguments_are_refused_as_by_keras",
        "tests/layers/test_composite.py::test_a_frozen_layer_has_no_trainable_weight_until_it_is_set",
        "tests/layers/test_composite.py::test_a_path_of_no_layer_is_reported",
        "tests/layers/test_composite.py::test_nothing_is_saved_of_layers_inside",
        "tests/models/test_scheduled_sampling.py::test_what_is_neither_share_nor_schedule",
    ],
}
LEFT_OUT_ON_JAX = {
    "the search has no code of a backend, and other tests run it there": [
        "tests/models/test_transformer_options.py::test_generate_takes_limits_and_penalties",
        "tests/models/test_sequence_to_sequence_generation.py::"
        "test_a_sentence_is_translated_alike_in_any_company[ratios]",
        "tests/models/test_sequence_to_sequence_generation.py::"
        "test_alignments_are_the_last_layers_mean_over_heads[sampling]",
        "tests/models/test_sequence_to_sequence_generation.py::"
        "test_alignments_are_the_last_layers_mean_over_heads[beam]",
        "tests/models/test_sequence_to_sequence_generation.py::test_outputs_begin_with_the_prefix",
        "tests/models/test_sequence_to_sequence_generation.py::test_what_cannot_be_searched",
        "tests/models/test_sequence_to_sequence_generation.py::test_lengths_relative_to_the_source",
        "tests/models/test_transformer_options.py::test_beam_search_runs_with_everything_at_once",
        "tests/decoding/test_search_language_model.py::test_a_wide_beam_finds",
        "tests/decoding/test_search_options.py::test_any_combination_of_rules",
        "tests/decoding/test_search_options.py::test_a_beam_of_all_sequences",
        "tests/decoding/test_search_options.py::test_the_other_sentences_of_the_batch",
        "tests/decoding/test_search_alignments.py::test_a_step_that_follows_paths",
        "tests/decoding/test_search_alignments.py::test_alignments_are_what_the_step_attended_to",
        "tests/decoding/test_search_arguments.py::test_a_bound_beyond_all_lengths",
        "tests/models/test_transformer_half_precision.py::test_a_beam_of_1_equals_greedy_search",
        "tests/decoding/test_search_options.py::test_a_search_without_a_length_penalty",
        "tests/decoding/test_beam_search_extensions.py::test_a_search_of_a_large_vocabulary",
        "tests/decoding/test_beam_search_stopping.py::test_a_beam_stops_as_the_search_by_hand",
        "tests/decoding/test_beam_search_groups.py::test_diversity",
        "tests/decoding/test_beam_search_steps.py::test_a_loop_in_python_finds_the_same[groups]",
        "tests/decoding/test_sampling.py::test_what_is_ruled_out_is_never_drawn",
        "tests/models/test_scoring.py::test_lists_are_scored_as_arrays_are",
    ],
    "its numbers are those of layers and losses that have tests there": [
        "tests/test_guide.py::test_code_gives_what_it_shows",
    ],
    "another case of the same test is tried": [
        "tests/models/test_transformer_options.py::test_packed_sentences_are_as_blind_to_each_other"
        "_as_in_rows_of_their_own[None]",
        "tests/models/test_transformer_options.py::test_padding_and_the_future_do_not_leak[learned]",
        "tests/models/test_transformer_options.py::test_padding_and_the_future_do_not_leak[window]",
        "tests/models/test_transformer_options.py::test_padding_may_be_on_the_left[learned]",
        "tests/models/test_transformer_options.py::test_configuration_and_files_rebuild_the_model[le",
        "tests/models/test_recurrent_shapes.py::"
        "test_nothing_in_gives_nothing_out_as_with_the_transformer[shape1-lstm]",
        "tests/models/test_recurrent_shapes.py::test_shapes_of_other_sentences_are_refused",
        "tests/models/test_sequence_to_sequence_token_ids.py::"
        "test_whole_floats_are_ids_in_every_method[recur",
        "tests/models/test_sequence_to_sequence_token_ids.py::"
        "test_mixed_precision_does_not_round_ids_that_are_floats[mixed_float16",
        "tests/models/test_transformer_half_precision.py::"
        "test_more_padding_and_other_sentences_change_nothing[mixed_float16]",
        "tests/models/test_transformer.py::test_padding_on_the_left_changes_no_gradient[position0]",
        "tests/models/test_transformer.py::test_more_padding_changes_no_gradient[False]",
        "tests/models/test_transformer.py::test_large_activations_give_no_nan_in_half_precision[mi"
        "xed_float16",
        "tests/models/test_transformer.py::test_padding_on_the_left_changes_next_to_nothing",
        "tests/models/test_transformer.py::test_logits_depend_on_real_tokens_alone[compiled",
        "tests/layers/test_keras_attention_weights.py::"
        "test_a_model_that_was_built_but_never_called_can_be_quantized[True]",
        "tests/layers/test_composite.py::test_a_layer_frozen_inside_stays_frozen",
        "tests/layers/test_multi_head_attention_properties.py::test_asking_for_scores_and_the_call",
        "tests/layers/test_block_properties.py::test_a_decoders_output_has_no_gradient",
        "tests/layers/test_multi_head_attention_half_precision.py::"
        "test_rows_without_positions_have_no_output[mixed_bfloat16]",
        "tests/test_checks.py::test_whole_floats_are_ids_where_nothing_else_tells_padding",
        "tests/test_checks.py::test_a_dict_of_inputs_and_pooled_outputs",
        "tests/models/test_sequence_to_sequence.py::test_a_table_of_the_ids_weights",
    ],
}


LEFT_OUT = {"jax": LEFT_OUT_ON_BOTH | LEFT_OUT_ON_JAX, "torch": LEFT_OUT_ON_BOTH}


def reason_to_leave_out(node_id, backend):
    """Why a test is not run on a backend; None when it is."""
    for reason, beginnings in LEFT_OUT.get(backend, {}).items():
        if node_id.startswith(tuple(beginnings)):
            return f"{reason}: tests/other_backends.py"
    return None
