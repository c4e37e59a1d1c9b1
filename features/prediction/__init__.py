"""From records to model inputs: instances, labels, history, peers and buckets.

Instances are row numbers as long as possible; values are read last. Everything fitted in this
package is fitted to training instances and uses no data from the training cutoff on.
"""
