"""What is asked, what is right, and which inputs exist: byte tokens, function families, and the corpus drawn from them."""
