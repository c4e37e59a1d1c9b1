"""Outputs of AMD's tools, and what the driver amdgpu reports in kernel logs."""
