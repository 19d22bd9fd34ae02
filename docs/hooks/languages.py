"""Says in each page of the Korean guide that it is Korean, for fonts, line breaks and readers."""

KOREAN = "guide/ko/"


def on_post_page(output, page, **_):
    """Sets the language of the page."""
    if not page.file.src_uri.startswith(KOREAN):
        return output
    if '<html lang="en"' not in output:
        raise ValueError('a page of the site must begin with <html lang="en". Received: another')
    return output.replace('<html lang="en"', '<html lang="ko"', 1)
