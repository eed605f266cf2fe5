-- What a tenant's sandboxes reach when their caller does not say.
ALTER TABLE tenants ADD COLUMN network_default TEXT;
