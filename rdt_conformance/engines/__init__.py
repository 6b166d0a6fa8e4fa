"""One vocabulary for producing, passing and freeing RDT objects, and the engines that carry it out."""
