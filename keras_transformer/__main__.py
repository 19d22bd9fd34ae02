"""`python -m keras_transformer`: the command line."""

import sys

from keras_transformer.commands.main import main

sys.exit(main())
