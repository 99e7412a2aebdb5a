"""Resources as they are on the wire: declared once, for the server and its clients."""
