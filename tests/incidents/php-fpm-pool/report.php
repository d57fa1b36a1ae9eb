<?php

// A report that asks a slow service for the rates, and logs how long that takes.

function fetch_rates() {
    usleep(400000);
}

$begin = microtime(true);
fetch_rates();
file_put_contents('DIRECTORY/rates', 'fetch_rates ' . (microtime(true) - $begin) . "\n", FILE_APPEND);
echo "ok\n";
