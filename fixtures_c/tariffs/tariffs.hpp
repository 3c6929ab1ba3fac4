#ifndef TARIFFS_HPP
#define TARIFFS_HPP

#include <map>
#include <memory>
#include <string>
#include <vector>

// What a customer pays in cents for a number of units.
class Tariff {
public:
    virtual ~Tariff() = default;
    virtual int price(int units) const = 0;
    virtual std::string name() const = 0;
    virtual void raise(int cents) = 0;
};

class Flat : public Tariff {
public:
    explicit Flat(int cents) : cents_(cents) {}
    int price(int units) const override { return units * cents_; }
    std::string name() const override { return "flat"; }
    void raise(int cents) override { cents_ += cents; }

private:
    int cents_;
};

// The first units have a price of their own, all further ones that of another tariff.
class Stepped : public Tariff {
public:
    Stepped(int first, int cents, std::shared_ptr<Tariff> rest);
    int price(int units) const override;
    std::string name() const override;
    void raise(int cents) override;

private:
    int first_;
    int cents_;
    std::shared_ptr<Tariff> rest_;
};

struct Customer {
    std::string name;
    std::shared_ptr<Tariff> tariff;
    std::vector<int> readings;
};

// Tariffs by name; a customer keeps the one that had the name when he or she signed.
class Utility {
public:
    void offer(const std::string &name, std::shared_ptr<Tariff> tariff);
    std::shared_ptr<Tariff> find(const std::string &name) const;
    Customer &sign(const std::string &customer, const std::string &tariff);
    Customer &customer(const std::string &name) { return customers_.at(name); }

    // Another tariff under the same name, for all who have that one.
    void replace(const std::string &name, std::shared_ptr<Tariff> tariff);

    int bill(const std::string &customer) const;

private:
    std::map<std::string, std::shared_ptr<Tariff>> tariffs_;
    std::map<std::string, Customer> customers_;
};

#endif
