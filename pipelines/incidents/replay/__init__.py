"""Policy files of a site, and replay of a policy on a fleet's history."""
