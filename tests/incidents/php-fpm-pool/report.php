<?php

// A report that asks a slow service for the rates.

function fetch_rates() {
    usleep(400000);
}

fetch_rates();
echo "ok\n";
