"""A moment of two runs becomes its cause, by experiments; the causes found become a Chain."""
