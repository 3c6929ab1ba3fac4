#ifndef STOCK_HPP
#define STOCK_HPP

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct Article {
    int count = 0;
    int cents = 0;
};

struct Order {
    std::string customer;
    std::map<std::string, int> counts;
};

// What is in the warehouse, and the orders that wait for articles.
class Stock {
public:
    void deliver(const std::string &article, int count, int cents);

    // Takes all articles of the order and returns its price in cents; when one is short, the order waits and has none.
    std::optional<int> place(std::unique_ptr<Order> order);

    // Tries the waiting orders again, oldest first; returns the customers whose orders could be met.
    std::vector<std::string> retry();

    std::size_t waiting() const { return waiting_.size(); }
    const std::map<std::string, Article> &articles() const { return articles_; }

private:
    bool suffices(const Order &order);
    int take(const Order &order);

    std::map<std::string, Article> articles_;
    std::vector<std::unique_ptr<Order>> waiting_;
};

#endif
