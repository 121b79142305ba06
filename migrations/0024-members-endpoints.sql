-- The turns of `members` endpoints: the next ones by id, however many endpoints of the format `line` lie between them.
create index endpoint_members on endpoint (id) where format = 'members' and status = 'active';
