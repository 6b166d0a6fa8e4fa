"""Whether the reference RDT is what Ray does: the same generated program on both, compared call by call.

`steps` and `programs` say what a program is and generate programs, `play` plays one in a world, `compare` tells how two
plays differ, `limits` names what Ray itself does not do right, and `study` puts them together.
"""
