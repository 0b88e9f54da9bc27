"""Everything that needs torch: losses, networks, batches of lists, and the net that trains them."""
