# Has a price for each question, after counting for a while, and logs how long that takes: by the kernel's
# clock, in hundredths of a second.
now() {
    read -r uptime idle < /proc/uptime
    hundredths=${uptime%.*}${uptime#*.}
}

count_stock() {
    stock=0
    while [ $stock -lt 60000 ]; do
        stock=$((stock + 1))
    done
}

while read -r question; do
    now
    begin=$hundredths
    count_stock
    now
    took=$((hundredths - begin))
    echo "count $((took / 100)).$(printf %02d $((took % 100)))" >> /volume/counts
    echo "$stock" > /volume/answer
done < /volume/question
