"""Where data are read and updates computed: in the agent's process, or in one without keys and network."""
