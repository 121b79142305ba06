-- What an operator may see. A repeatable file: see CONTRIBUTING.md.

-- Whether a row of the organization is visible to an operator of these organizations; null: of all. PostgreSQL replaces the call by its
-- text, so indexes of the organization work. A row without an organization is visible to operators of all organizations only.
create or replace function visible(organization_id bigint, organization_ids bigint[]) returns boolean
  language sql immutable parallel safe
  return organization_ids is null or organization_id = any (organization_ids);
