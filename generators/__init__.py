"""Makes files of the source tree from tables of ours. Run by contributors; tests compare what is committed."""
