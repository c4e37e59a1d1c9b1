"""Records to what a model sees: instances, labels, history, peers, buckets.

Instances are numbers of rows until the last moment. Whatever is fitted here is fitted to the
instances of a training, and sees nothing from the moment t on.
"""
