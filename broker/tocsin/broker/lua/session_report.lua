-- How a session of a host stands that serves the agent: presence of its process and its status, no
-- sign of work. Answers with the other live sessions on the seat.
-- keys: partition
-- args: clock herd agent token instance host session state paths
-- answers: sessions <host, session, instance, state, since, paths> ...
-- moves: none
-- memory: allow-oom
-- include: seat timer lease mail reminders turns hosts

seat.prove()
if args.state ~= 'ended' then lease.touch() end
return { 'sessions', unpack(hosts.rows(hosts.report(args.host, args.session, args.state, args.paths))) }
