<?php

// Counts its visits in $DATA_DIR. Health checks come to / and are not counted.
require __DIR__ . '/../vendor/autoload.php';

$db = new PDO('sqlite:' . getenv('DATA_DIR') . '/visits.db');
$db->exec('CREATE TABLE IF NOT EXISTS visits (path TEXT)');
$db->prepare('INSERT INTO visits VALUES (?)')->execute([$_SERVER['REQUEST_URI']]);
$count = $db->prepare('SELECT count(*) FROM visits WHERE path = ?');
$count->execute([$_SERVER['REQUEST_URI']]);
echo greeting(), ' at ', $_SERVER['REQUEST_URI'], ', visit ', $count->fetchColumn();
