-- The turns of `members` endpoints: the next ones by id, however many other endpoints lie between them.
create index endpoint_turns on endpoint (format, status, id);
