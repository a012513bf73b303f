<?php

function greeting(): string
{
    return 'hello from a package';
}
