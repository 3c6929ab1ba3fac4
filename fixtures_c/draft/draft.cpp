// draft: edits the text given as first argument by the commands that follow, then prints it.
//
//     draft TEXT [insert POSITION WORD | erase POSITION LENGTH | swap FROM TO | undo | redo]...

#include "edits.hpp"

#include <iostream>
#include <stdexcept>

namespace {

class Commands {
public:
    Commands(int argc, char **argv) : words_(argv + 1, argv + argc) {}

    bool more() const { return next_ < words_.size(); }

    const std::string &word()
    {
        if (!more())
            throw std::runtime_error("something is missing at the end");
        return words_[next_++];
    }

    std::size_t number() { return std::stoul(word()); }

private:
    std::vector<std::string> words_;
    std::size_t next_ = 0;
};

// The edit a command stands for, null when it stands for none.
std::unique_ptr<Edit> read_edit(const std::string &verb, Commands &commands)
{
    if (verb == "insert") {
        const std::size_t position = commands.number();
        return std::make_unique<Insert>(position, commands.word());
    }
    if (verb == "erase") {
        const std::size_t position = commands.number();
        return std::make_unique<Erase>(position, commands.number());
    }
    if (verb == "swap") {
        const char from = commands.word().at(0);
        return std::make_unique<Swap>(from, commands.word().at(0));
    }
    return nullptr;
}

void obey(Commands &commands, History &history, std::string &text)
{
    const std::string &verb = commands.word();

    if (verb == "undo" || verb == "redo") {
        const std::string name = verb == "undo" ? history.undo(text) : history.redo(text);

        std::cout << verb << ' ' << (name.empty() ? "nothing" : name) << '\n';
        return;
    }
    std::unique_ptr<Edit> edit = read_edit(verb, commands);
    if (!edit)
        throw std::runtime_error("what is " + verb + "?");
    history.perform(std::move(edit), text);
}

} // namespace

int main(int argc, char **argv)
{
    Commands commands(argc, argv);
    History history;

    try {
        std::string text = commands.word();

        while (commands.more())
            obey(commands, history, text);
        std::cout << text << '\n';
    } catch (const std::exception &problem) {
        std::cerr << "draft: " << problem.what() << '\n';
        return 1;
    }
    return 0;
}
