"""Everything that needs torch: losses, networks, batches of lists, the net that trains them."""
