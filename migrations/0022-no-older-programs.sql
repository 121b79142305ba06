-- A program refuses a schema that is newer than the program, so the database no longer says which older programs it supports.

drop table schema_compatibility;
