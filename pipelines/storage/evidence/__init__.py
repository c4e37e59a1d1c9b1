"""What is known of machines from elsewhere: daily lists, and what kernels reported."""
