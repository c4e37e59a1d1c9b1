"""Parts of a job that monitors of its communication wrote: NCCL RAS, NCCL inspector, XPUTimer."""
