"""When things happen: config, plan, build, publish, report, and the command on top."""
