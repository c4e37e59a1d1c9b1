"""Where an agent reads the GPUs of its host: NVML, and the programs of the vendors."""
