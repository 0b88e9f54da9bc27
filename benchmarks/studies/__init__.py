"""The measurements that the guide and its studies quote."""
