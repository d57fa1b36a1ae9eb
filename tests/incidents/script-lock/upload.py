"""It uploads a dump to a store that takes all the time in the world."""

import time


def upload_dump():
    time.sleep(600)


upload_dump()
