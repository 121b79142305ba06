-- An address belongs to the operator who has joined with it: by a password, or through a proxy. An invitation that nobody has accepted
-- does not reserve the address, so the owners of different organizations can invite the same person, and learn nothing of each other.
alter table operator drop constraint operator_email_key;
create unique index operator_email_joined on operator (email) where password_hash is not null or signed_in_at is not null;
create index operator_email on operator (email);
