-- Sessions of the console. Until now a cookie proved itself by its signature, so a sign-out could not end a copied one.
create table operator_session (
  -- SHA-256 of the cookie's value, so that a copy of the database opens no session.
  id_hash bytea primary key,
  -- HMAC-SHA-256 of the cookie's value under CONSOLE_TOKEN: another token ends the session. It says nothing about the token to a
  -- reader of the table, who does not know the cookie.
  token_mac bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index operator_session_expiry on operator_session (expires_at);
