# Asks for prices, and logs how long the answer takes: by the kernel's clock, in hundredths of a second.
now() {
    read -r uptime idle < /proc/uptime
    hundredths=${uptime%.*}${uptime#*.}
}

exec 3> /volume/question
while :; do
    now
    begin=$hundredths
    echo price >&3
    read -r price < /volume/answer
    now
    waited=$((hundredths - begin))
    echo "price $((waited / 100)).$(printf %02d $((waited % 100)))" >> /volume/log
done
