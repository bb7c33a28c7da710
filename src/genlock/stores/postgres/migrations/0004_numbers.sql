-- Names are numbered as before, but only those are inserted that have no number: what is there already would use one up all the same,
-- and there are two thousand million of them. A commit with one new session among five hundred took five hundred.

CREATE OR REPLACE FUNCTION genlock.places_of(tenants text[], projects text[]) RETURNS int4[] LANGUAGE plpgsql AS $$
DECLARE
    numbers int4[];
BEGIN
    FOR attempt IN 1..2 LOOP
        numbers := ARRAY(
            SELECT (SELECT p.id FROM genlock.project AS p WHERE p.tenant = n.tenant AND p.project = n.project)
            FROM unnest(tenants, projects) WITH ORDINALITY AS n (tenant, project, at) ORDER BY n.at
        );
        EXIT WHEN array_position(numbers, NULL) IS NULL;
        INSERT INTO genlock.project (tenant, project) SELECT n.tenant, n.project
        FROM unnest(tenants, projects, numbers) AS n (tenant, project, number) WHERE n.number IS NULL
        ORDER BY n.tenant COLLATE "C", n.project COLLATE "C" ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN numbers;
END $$;

CREATE OR REPLACE FUNCTION genlock.pools_of(places int4[], names text[]) RETURNS int4[] LANGUAGE plpgsql AS $$
DECLARE
    numbers int4[];
BEGIN
    FOR attempt IN 1..2 LOOP
        numbers := ARRAY(
            SELECT (SELECT p.id FROM genlock.pool AS p WHERE p.project = n.project AND p.name = n.name)
            FROM unnest(places, names) WITH ORDINALITY AS n (project, name, at) ORDER BY n.at
        );
        EXIT WHEN array_position(numbers, NULL) IS NULL;
        INSERT INTO genlock.pool (project, name) SELECT n.project, n.name
        FROM unnest(places, names, numbers) AS n (project, name, number) WHERE n.number IS NULL
        ORDER BY n.project, n.name COLLATE "C" ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN numbers;
END $$;

CREATE OR REPLACE FUNCTION genlock.sessions_of(tenants text[], names text[]) RETURNS int4[] LANGUAGE plpgsql AS $$
DECLARE
    numbers int4[];
BEGIN
    FOR attempt IN 1..2 LOOP
        numbers := ARRAY(
            SELECT (SELECT s.id FROM genlock.session AS s WHERE s.tenant = n.tenant AND s.name = n.name)
            FROM unnest(tenants, names) WITH ORDINALITY AS n (tenant, name, at) ORDER BY n.at
        );
        EXIT WHEN array_position(numbers, NULL) IS NULL;
        INSERT INTO genlock.session (tenant, name) SELECT n.tenant, n.name
        FROM unnest(tenants, names, numbers) AS n (tenant, name, number) WHERE n.number IS NULL
        ORDER BY n.tenant COLLATE "C", n.name COLLATE "C" ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN numbers;
END $$;
