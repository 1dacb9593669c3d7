"""What an engine does with requests that arrive: who runs, who waits, which blocks are used, who is preempted."""
