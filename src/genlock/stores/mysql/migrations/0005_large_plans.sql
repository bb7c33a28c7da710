-- For PostgreSQL, where commits and purges took longer the more there was. (A packet must not be empty.)
DO 0;
