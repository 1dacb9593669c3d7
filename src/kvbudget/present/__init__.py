"""Text, Markdown, CSV and HTML from any result; the only place a byte becomes a GiB."""
