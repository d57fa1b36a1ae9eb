# Has a price for each question, after counting for a while.
count_stock() {
    stock=0
    while [ $stock -lt 60000 ]; do
        stock=$((stock + 1))
    done
}

while read -r question; do
    count_stock
    echo "$stock" > /volume/answer
done < /volume/question
