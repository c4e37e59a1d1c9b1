"""`forewarn diagnose`: reads a job's folder, part by part, and says what is wrong with the job."""
