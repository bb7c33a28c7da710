-- For SQLite, where a file may be copied by anybody. (A packet must not be empty.)
DO 0;
