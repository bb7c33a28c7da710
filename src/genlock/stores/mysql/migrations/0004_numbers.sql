-- For PostgreSQL, where names that had a number used up another one. Here it is looked first. (A packet must not be empty.)
DO 0;
