#ifndef EDITS_HPP
#define EDITS_HPP

#include <memory>
#include <string>
#include <vector>

// A change of a text that can be undone and done again.
class Edit {
public:
    virtual ~Edit() = default;
    virtual void apply(std::string &text) = 0;
    virtual void undo(std::string &text) = 0;
    virtual std::string name() const = 0;
};

class Insert : public Edit {
public:
    Insert(std::size_t position, std::string inserted);
    void apply(std::string &text) override;
    void undo(std::string &text) override;
    std::string name() const override { return "insert"; }

private:
    std::size_t position_;
    std::string inserted_;
};

class Erase : public Edit {
public:
    Erase(std::size_t position, std::size_t length);
    void apply(std::string &text) override;
    void undo(std::string &text) override;
    std::string name() const override { return "erase"; }

private:
    std::size_t position_;
    std::size_t length_;
    std::string erased_;
};

// Replaces each occurrence of a character.
class Swap : public Edit {
public:
    Swap(char from, char to);
    void apply(std::string &text) override;
    void undo(std::string &text) override;
    std::string name() const override { return "swap"; }

private:
    char from_;
    char to_;
    std::vector<std::size_t> positions_;
};

// Edits that were done, and those that were undone and can be done again.
class History {
public:
    void perform(std::unique_ptr<Edit> edit, std::string &text);

    // The name of the edit undone or done again, empty when there is none.
    std::string undo(std::string &text);
    std::string redo(std::string &text);

private:
    std::vector<std::unique_ptr<Edit>> done_;
    std::vector<std::unique_ptr<Edit>> undone_;
};

#endif
