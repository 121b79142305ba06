-- Lists begin after the smallest id, so a member with that id would be in none of them. A cursor is the last id of a page, and
-- no id precedes this one. The check costs less than a condition of its own on the first page of every list.
-- Not validated: validating would read every member under a lock, and no program counts down from here.
alter table audience_member
  add constraint audience_member_id check (id <> '-9223372036854775808'::bigint) not valid;

-- One row. A program may run on this schema if the newest migration that it knows is at least `oldest_supported`, also when
-- the schema has newer migrations. A migration that breaks the statements of older programs raises it with an update.
create table schema_compatibility (
  is_only_row boolean primary key default true check (is_only_row),
  oldest_supported integer not null
);
insert into schema_compatibility (oldest_supported) values (6);
