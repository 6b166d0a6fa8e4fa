"""Reference transports: the best short example of each kind, one file each, written to be read and copied from.

Nothing here imports ``rdt_conformance``: copy a file, together with what it imports from here, such as ``_layout``.
"""
