CREATE TABLE product (id int PRIMARY KEY, stock int NOT NULL);
INSERT INTO product SELECT id, 1000000 FROM generate_series(1, 100) AS id;
