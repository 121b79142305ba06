-- Since 0.4.0, a process keeps refused deliveries in its memory alone. The table stays for processes of 0.3.0, whose inserts store nothing.
truncate kept_delivery;

create function store_nothing() returns trigger language plpgsql as $$ begin return null; end $$;

create trigger kept_delivery_stores_nothing before insert on kept_delivery for each row execute function store_nothing();
