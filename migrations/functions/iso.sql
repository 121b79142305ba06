-- How times are written in responses. A repeatable file: see CONTRIBUTING.md.

-- ISO 8601 in UTC with milliseconds, as JavaScript writes it: 2026-11-25T09:00:00.000Z. PostgreSQL replaces the call by its text, so a
-- row costs no call.
create or replace function iso(at timestamptz) returns text
  language sql stable parallel safe
  return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
