-- Which file this is: the number of its inode. NULL until that is first noted, '' in a copy that nobody has opened to write yet.
CREATE TABLE file (
    inode TEXT
) STRICT;

INSERT INTO file (inode) VALUES (NULL);
